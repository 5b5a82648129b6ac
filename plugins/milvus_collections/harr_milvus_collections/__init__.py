"""Collections of a Milvus server: one that the user already has is searched, or harr's own is filled from files."""
