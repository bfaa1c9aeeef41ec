"""Records in order, once: the FIFO queue and the stores."""
