"""Calls that raise."""

import pytest


def raises(error, match, call, /, *given, **options):
    """Require that a call raises an error whose message matches; None for any message."""
    __tracebackhide__ = True
    with pytest.raises(error, match=match):
        call(*given, **options)


def raising(error):
    """Return a function of any arguments that raises an error."""

    def call(*_, **__):
        raise error

    return call
