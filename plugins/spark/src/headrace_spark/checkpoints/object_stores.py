"""The settings of S3 for workers: those that Spark has for Hadoop's s3a, translated for pyarrow. One setting serves both."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from headrace.interfaces.settings import Secret
from pyarrow import fs as untyped_fs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)
SCHEMES = ("s3", "s3a")
#: Writes a checkpoint file by one request that can be given up, without a rename. It is in Spark's module hadoop-cloud.
_CHECKPOINT_FILES_CLASS = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
_CHECKPOINT_FILES_SETTING = "spark.sql.streaming.checkpointFileManagerClass"
#: Variables that tell Amazon's SDK in pyarrow where a bucket is.
_PLACE_VARIABLES = frozenset({"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"})
_ANONYMOUS = "AnonymousAWSCredentialsProvider"
_ASSUMED_ROLE = "AssumedRoleCredentialProvider"


@dataclass(frozen=True)
class S3Options:
    """How workers reach a bucket. What is not set, pyarrow finds as other programs do: in the environment, or as the machine's role."""

    access_key: Secret | None = None
    secret_key: Secret | None = None
    session_token: Secret | None = None
    anonymous: bool = False
    role_arn: str | None = None
    region: str | None = None
    #: Host and port, for stores other than Amazon's.
    endpoint: str | None = None
    tls: bool = True
    path_style: bool = False
    proxy: str | None = None

    @classmethod
    def of(cls, find: Callable[[str], str | None], find_secret: Callable[[str], str | None]) -> S3Options:
        """Return the options that settings of ``fs.s3a`` say, which ``find`` gives by their names without that prefix."""

        def secret(name: str) -> Secret | None:
            value = find_secret(name)
            return Secret(value) if value else None

        providers = find("aws.credentials.provider") or ""
        given = find("endpoint") or None
        tls = (find("connection.ssl.enabled") or "true").lower() == "true"
        endpoint = urlsplit(given if given is None or "://" in given else f"//{given}").netloc if given else None
        if given is not None and "://" in given:
            tls = given.startswith("https:")
        access_key = secret("access.key")
        host, port = find("proxy.host"), find("proxy.port")
        return cls(
            access_key=access_key,
            secret_key=secret("secret.key"),
            session_token=secret("session.token"),
            anonymous=_ANONYMOUS in providers and access_key is None,
            role_arn=find("assumed.role.arn") if _ASSUMED_ROLE in providers else None,
            region=find("endpoint.region") or None,
            endpoint=endpoint,
            tls=tls,
            path_style=(find("path.style.access") or "false").lower() == "true",
            proxy=f"http://{host}:{port or 80}" if host else None,
        )

    @classmethod
    def of_hadoop(cls, jvm: Any, configuration: Any, uri: str) -> S3Options | None:
        """Return the options of a bucket in Hadoop's configuration; None if the URI is of another store."""
        parts = urlsplit(uri)
        if parts.scheme not in SCHEMES:
            return None
        prefixes = (f"fs.s3a.bucket.{parts.netloc}.", "fs.s3a.")

        def find(name: str) -> str | None:
            return next((value for prefix in prefixes if (value := configuration.getTrimmed(f"{prefix}{name}"))), None)

        def find_secret(name: str) -> str | None:
            for prefix in prefixes:
                # Also from Hadoop's encrypted files of credentials.
                characters = configuration.getPassword(f"{prefix}{name}")
                if characters is not None:
                    return str(jvm.java.lang.String(characters)).strip() or None
            return None

        return cls.of(find, find_secret)

    def file_system(self, bucket: str) -> Any:
        """Return pyarrow's file system for a bucket."""
        arguments: dict[str, Any] = {"anonymous": self.anonymous, "scheme": "https" if self.tls else "http"}
        if self.access_key is not None and self.secret_key is not None:
            arguments |= {"access_key": self.access_key.reveal(), "secret_key": self.secret_key.reveal()}
            if self.session_token is not None:
                arguments["session_token"] = self.session_token.reveal()
        elif self.role_arn is not None:
            arguments["role_arn"] = self.role_arn
        if self.endpoint is not None:
            # pyarrow puts the bucket in the path if there is an endpoint, unless it is told otherwise.
            arguments |= {"endpoint_override": self.endpoint, "force_virtual_addressing": not self.path_style}
        if self.region is not None:
            arguments["region"] = self.region
        elif self.endpoint is None and not _PLACE_VARIABLES & set(os.environ):
            arguments["region"] = untyped_fs.resolve_s3_region(bucket)
        if self.proxy is not None:
            arguments["proxy_options"] = self.proxy
        return untyped_fs.S3FileSystem(**arguments)


def use_checkpoint_files(session: SparkSession, location: str) -> None:
    """Let Spark write a checkpoint in S3 without renames if it has the class for it, unless the user has chosen a class.

    Without that class Spark writes a file under another name and copies it. Each file appears as a whole then too.
    """
    if urlsplit(location).scheme not in SCHEMES or _CHECKPOINT_FILES_SETTING in dict(
        session.sparkContext.getConf().getAll()
    ):
        return
    jvm: Any = session.sparkContext._jvm
    try:
        jvm.org.apache.spark.util.Utils.classForName(_CHECKPOINT_FILES_CLASS, True, False)
    except Exception:  # py4j's: there is no such class
        logger.debug("%s is not on Spark's class path", _CHECKPOINT_FILES_CLASS)
        return
    session.conf.set(_CHECKPOINT_FILES_SETTING, _CHECKPOINT_FILES_CLASS)
