"""`python -m amp_rewrite` is the command `amp-rewrite`."""

from amp_rewrite.cli import main

if __name__ == "__main__":
    main()
