"""One turn of an agent with a model that is built in, for `holdfast agents doctor`."""
