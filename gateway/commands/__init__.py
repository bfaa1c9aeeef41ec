"""The commands of `holdfast`, one module each, imported only when they are asked for."""
