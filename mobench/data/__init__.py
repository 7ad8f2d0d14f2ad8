"""Data sets: official files and embedded stand-ins. Files are read when their set is first used.

May import: core, errors, system.
"""

from mobench.data.images import Images, load_images
from mobench.data.multi import MultiImages, multi_images

__all__ = ["Images", "MultiImages", "load_images", "multi_images"]
