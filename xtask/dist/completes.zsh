# Types `tidelock ru`, Tab and Enter in an interactive zsh, and fails unless that ran `tidelock run`. SHARE: the folder with the
# completions.
zmodload zsh/zpty
export TERM=dumb
zpty shell zsh -fi
zpty -w shell 'fpath=($SHARE $fpath); autoload -Uz compinit; compinit -D -u; tidelock() { print got:$1: }'
zpty -n -w shell $'tidelock ru\t\n'
zpty -n -w shell $'exit\n'
while zpty -r shell piece; do
    all+=$piece
done
if [[ $all != *got:run:* ]]; then
    print -ru2 -- $all
    exit 1
fi
