"""Files, folders and object stores that several processes share; locks, and the owners that hold them."""
