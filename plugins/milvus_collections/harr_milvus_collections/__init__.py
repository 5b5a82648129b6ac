"""Collections of a Milvus server: search the user's own, or fill harr's from files."""
