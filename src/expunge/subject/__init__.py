"""The subject: what is held on somebody."""

from expunge.subject.profile import Profile, read_profile

__all__ = ["Profile", "read_profile"]
