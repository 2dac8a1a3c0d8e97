"""The version: read by the build, and by modules that record it."""

__version__ = "0.1.0rc1"
