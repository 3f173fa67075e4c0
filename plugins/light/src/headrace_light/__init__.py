"""The light backend of headrace: the whole job in one small process."""
