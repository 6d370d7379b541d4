"""Tests of the stores outside the database."""
