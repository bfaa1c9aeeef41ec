"""One declaration per route: its handler, its access policy, its documentation."""
