"""The distributions as users install them."""
