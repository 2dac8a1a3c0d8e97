"""Calls that raise."""

import pytest


def raises(error, match, call, /, *given, **options):
    """Require that a call raises an error whose message matches."""
    __tracebackhide__ = True
    with pytest.raises(error, match=match):
        call(*given, **options)
