"""The pictures that the commands draw, as SVG."""
