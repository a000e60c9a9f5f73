"""torch.compile: our stack as its backend (``backend``), and what Dynamo, AOTAutograd and Inductor did (``explain``)."""
