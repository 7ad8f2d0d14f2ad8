"""Image data: base sets of 28 x 28 images, and pictures of two of them.

No file is read before it is asked for.
"""

from mobench.data.images import Images, load_images
from mobench.data.multi import MultiImages, multi_images

__all__ = ["Images", "MultiImages", "load_images", "multi_images"]
