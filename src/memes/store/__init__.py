"""Run folders: plain files that a crash leaves whole, and what is read from them."""
