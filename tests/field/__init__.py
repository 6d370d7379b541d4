"""Reports of how deletion went wrong elsewhere, tried here: docs/field-reports.md says which row is which."""
