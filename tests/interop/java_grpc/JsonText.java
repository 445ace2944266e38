import java.util.Collection;
import java.util.Map;

/** Maps, collections, numbers, booleans and texts as one line of JSON. */
final class JsonText {
    private JsonText() {}

    static String of(Object value) {
        StringBuilder text = new StringBuilder();
        append(text, value);
        return text.toString();
    }

    private static void append(StringBuilder text, Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            text.append(value);
        } else if (value instanceof Map) {
            String separator = "{";
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                text.append(separator);
                quote(text, String.valueOf(entry.getKey()));
                text.append(':');
                append(text, entry.getValue());
                separator = ",";
            }
            text.append(separator.equals("{") ? "{}" : "}");
        } else if (value instanceof Collection) {
            String separator = "[";
            for (Object item : (Collection<?>) value) {
                text.append(separator);
                append(text, item);
                separator = ",";
            }
            text.append(separator.equals("[") ? "[]" : "]");
        } else {
            quote(text, String.valueOf(value));
        }
    }

    private static void quote(StringBuilder text, String value) {
        text.append('"');
        for (int i = 0; i < value.length(); i++) {
            char unit = value.charAt(i);
            if (unit == '"' || unit == '\\') {
                text.append('\\').append(unit);
            } else if (unit < 0x20 || unit > 0x7e) {
                text.append(String.format("\\u%04x", (int) unit));
            } else {
                text.append(unit);
            }
        }
        text.append('"');
    }
}
