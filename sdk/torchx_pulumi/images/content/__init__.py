"""What an image is patched with: the files of a workspace, what is left out, their hashes and their archive."""
