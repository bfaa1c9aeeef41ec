-- A session's spec as lists show it: without what its agent is given first (`start`, `pending`), which may be long. What is
-- short, or cannot be read as JSON here, stays as it is. U+0000 is dealt with as in `part_of`.
CREATE FUNCTION brief_of(spec bytea) RETURNS bytea LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
    body text;
BEGIN
    IF octet_length(spec) <= 4096 THEN
        RETURN spec;
    END IF;
    body := convert_from(spec, 'UTF8');
    IF position('\u0000' IN body) > 0 THEN
        body := replace(replace(replace(body, '\\', chr(1)), '\u0000', '\ufffd'), chr(1), '\\');
    END IF;
    SELECT json_object_agg(part.key, part.value) INTO body
    FROM json_each(body::json) AS part WHERE part.key NOT IN ('start', 'pending');
    RETURN convert_to(coalesce(body, '{}'), 'UTF8');
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN spec;
END
$$;
