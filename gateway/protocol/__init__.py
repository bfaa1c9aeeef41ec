"""The public protocol: chat frames, close codes, errors, reconnect policy, strict JSON."""
