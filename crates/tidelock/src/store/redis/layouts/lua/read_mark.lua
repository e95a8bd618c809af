-- ARGV: slot. Returns the mark or nil.
return mark(ARGV[1])
