"""`python -m vlmcli`."""

from vlmcli.cli.app import main

if __name__ == "__main__":
    main()
