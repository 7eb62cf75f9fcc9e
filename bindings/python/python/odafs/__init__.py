"""The client of ODAFS, a file server whose page cache its clients read directly."""

from ._client import Client, File, connect
from ._native import Attributes, __version__

__all__ = ["Attributes", "Client", "File", "__version__", "connect"]
