"""The stored format: keys, manifests, packs, pointers."""
