"""``python -m mlirstack`` is the command ``mlirstack``."""

from mlirstack.cli.main import main

if __name__ == "__main__":
    main()
