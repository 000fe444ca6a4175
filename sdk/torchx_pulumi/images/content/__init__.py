"""The files of a workspace for an image: rules that exclude some, their hashes and their archive."""
