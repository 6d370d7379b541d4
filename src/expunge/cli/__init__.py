"""The command line. Data goes to stdout, progress and errors to stderr; exit codes are in docs/reference/cli.md."""

from expunge.cli.app import main

__all__ = ["main"]
