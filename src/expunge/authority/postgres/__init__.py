"""The authority served: a schema of a PostgreSQL database."""
