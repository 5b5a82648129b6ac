"""The Milvus servers and the project that these tests use."""

from milvus_servers import lite_uri, milvus_server, milvus_uri, uri
from trained import project

__all__ = ["lite_uri", "milvus_server", "milvus_uri", "project", "uri"]
