"""MessagePack and CBOR for headrace: objects to columns and back."""

__version__ = "0.1.0"
