"""Where datasets come from: files of several formats, prepared folders and downloads of TFDS."""
