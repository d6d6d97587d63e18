"""Programs of the source tree that are no part of the package."""
