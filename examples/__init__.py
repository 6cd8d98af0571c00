"""Complete small projects that use the commands; nothing else imports them."""
