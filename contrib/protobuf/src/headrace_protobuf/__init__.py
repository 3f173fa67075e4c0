"""Protocol Buffers for headrace: messages to columns and back."""

__version__ = "0.1.0"
