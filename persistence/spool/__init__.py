"""The spool on this node's disk, in front of a remote store."""
