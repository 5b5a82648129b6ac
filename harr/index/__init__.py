"""Stage index: vectors become a collection of Milvus that is searched."""
