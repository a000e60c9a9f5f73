"""Rules that take ops apart before import, each file one kind of op, and the table that torch.export is given."""
