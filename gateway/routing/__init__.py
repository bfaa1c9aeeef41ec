"""One declaration per route: what is served, who may ask, what is documented."""
