"""Bodies in a plain folder: one file each, under the pseudonyms of whose it is (design 2, laws 12 and 14)."""

from expunge.stores.folder.store import FolderState, FolderStore

__all__ = ["FolderState", "FolderStore"]
