"""What is done with bundles: building them from models, feeding them inputs, timing them."""
