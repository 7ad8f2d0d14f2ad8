"""Data sets: official files and embedded stand-ins. No file is read before it is asked for.

May import: core, errors, system.
"""

from mobench.data.images import Images, load_images
from mobench.data.multi import MultiImages, multi_images

__all__ = ["Images", "MultiImages", "load_images", "multi_images"]
