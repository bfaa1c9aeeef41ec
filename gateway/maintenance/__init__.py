"""What runs now and then: retention, garbage collection, counts."""
