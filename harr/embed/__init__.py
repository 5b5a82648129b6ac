"""Stage embed: passages become vectors."""
