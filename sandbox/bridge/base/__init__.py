"""What every part of the bridge uses."""
