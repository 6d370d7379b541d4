"""Tests of what agents do with their memory."""
