"""The words of the product as types: ids, identities, scopes, instants, canonical JSON."""
