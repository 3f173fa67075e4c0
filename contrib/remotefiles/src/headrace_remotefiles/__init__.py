"""Remote files for headrace: ``from_file`` reads S3, Google Cloud Storage, Azure, SFTP and HTTP, by fsspec."""

__version__ = "0.1.0"
