"""Options out of files: recipes by name or path, and the configuration files of user and project.

Reads TOML and checks it against the options that commands have, which are told by the caller: this
package knows no command. Says where a setting stands; what it means for a job is decided elsewhere.
(`vlmcli.recipe` is another thing: the digest by which kept results are found.)
"""
